//! kintsu-runtime
