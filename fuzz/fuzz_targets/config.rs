//! Files of options: each is taken or refused with its line.
#![no_main]

#[path = "../../crates/kintsu/src/config_file.rs"]
#[allow(dead_code, reason = "only the reader is tried")]
mod config_file;

use std::path::Path;

use clap::{Arg, ArgAction, Command, value_parser};
use config_file::ConfigFile;
use libfuzzer_sys::fuzz_target;

/// A command line with options of all kinds.
fn command() -> Command {
    let number = Arg::new("nodes").long("nodes").value_parser(value_parser!(u32));
    let flag = Arg::new("grow").long("grow").action(ArgAction::SetTrue).conflicts_with("nodes");
    let list = Arg::new("class").long("class").action(ArgAction::Append);
    let global = Arg::new("coordinator").long("coordinator").global(true).default_value("127.0.0.1:7400");
    let with = |name| {
        let options = [number.clone(), flag.clone(), list.clone()];
        Command::new(name).args(options).arg(Arg::new("volume").required(true))
    };
    Command::new("kintsu").arg(global).subcommands(config_file::COMMANDS.map(with))
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let all = command();
    if let Ok(file) = ConfigFile::parse(Path::new("file"), text, &all)
        && file.check(&all, None).is_ok()
    {
        drop(file.applied(all));
    }
});
