//! kintsu-agent
