//! kintsu-store
