//! kintsu-plan
