//! kintsu-kernel
