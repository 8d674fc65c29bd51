//! kintsu-client
