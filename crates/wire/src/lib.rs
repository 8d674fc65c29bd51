//! kintsu-wire
