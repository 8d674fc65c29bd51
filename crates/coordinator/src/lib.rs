//! kintsu-coordinator
