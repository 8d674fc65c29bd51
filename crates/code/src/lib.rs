//! kintsu-code
