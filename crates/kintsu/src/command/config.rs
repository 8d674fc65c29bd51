//! `kintsu config`: the settings of the cluster, and files of options.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use kintsu_lab::Rate;
use kintsu_wire::message::{ChangeSetting, Settings};
use serde_json::{Value, json};

use super::Context;
use crate::config_file::{self, ConfigFile};
use crate::{cli, output};

/// One setting.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it does, for people.
    about: &'static str,
    /// Its value, as it is written.
    value: fn(&Settings) -> String,
    /// The change to a value, as it is written.
    change: fn(&str) -> anyhow::Result<ChangeSetting>,
}

/// The word for no limit.
const NONE: &str = "none";
/// The word for a setting's default.
const DEFAULT: &str = "default";

/// All settings.
pub const SETTINGS: [Row; 4] = [
    Row {
        name: "repair.max-rate",
        about: "most that repairs send, receive and read a second on each node",
        value: |settings| optional(settings.repair_max_rate.map(shown)),
        change: |text| Ok(ChangeSetting::RepairMaxRate(unless_none(text, rate)?)),
    },
    Row {
        name: "repair.min-rate",
        about: "what repairs may use on each node however slow users' operations are",
        value: |settings| shown(settings.repair_min_rate),
        change: |text| Ok(ChangeSetting::RepairMinRate(rate(text)?)),
    },
    Row {
        name: "repair.target",
        about: "how much longer users' operations may take during repairs (99th percentile)",
        value: |settings| optional(settings.repair_target.map(|percent| format!("{percent}%"))),
        change: |text| Ok(ChangeSetting::RepairTarget(unless_none(text, percent)?)),
    },
    Row {
        name: "repair.hold",
        about: "nodes gone at once beyond which (or with a whole rack) automatic repair waits for an operator",
        value: |settings| optional(settings.repair_hold.map(|percent| format!("{percent}%"))),
        change: |text| Ok(ChangeSetting::RepairHold(unless_none(text, percent)?)),
    },
];

/// `kintsu config check`, and `show` of a command: both need no cluster. `None` for what needs one.
pub fn without_cluster(
    command: &cli::ConfigCommand,
    file: Option<&Path>,
    json: bool,
) -> Option<anyhow::Result<ExitCode>> {
    match command {
        cli::ConfigCommand::Check { file: named } => Some(check(named.as_deref().or(file), json)),
        cli::ConfigCommand::Show { command: Some(command) } => Some(options(command, file, json)),
        _ => None,
    }
}

fn check(file: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let file = file.context("expected a file to check, or --config FILE")?;
    let all = cli::Cli::command();
    ConfigFile::read(file, &all)?.check(&all, None)?;
    match json {
        true => output::json(&json!({ "file": file, "sound": true }))?,
        false => output::line(&format!("{} is sound", file.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the options that a command would have, and where each is from.
fn options(command: &str, file: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let mut all = cli::Cli::command();
    let file = file.map(|path| ConfigFile::read(path, &all)).transpose()?;
    if let Some(file) = &file {
        file.check(&all, Some(command))?;
        all = file.applied(all);
    }
    all = config_file::lenient(all, command);
    let line = ["kintsu"].into_iter().chain(config_file::words_of(command));
    let found = all.clone().try_get_matches_from(line)?;
    let own = config_file::words_of(command)
        .try_fold(&found, |at, word| at.subcommand_matches(word))
        .context("expected the options of a command, got none")?;
    let sub = config_file::levels(&all, command).into_iter().flat_map(clap::Command::get_arguments);
    let common = all.get_arguments().filter(|arg| arg.is_global_set());
    let mut rows = Vec::new();
    for arg in sub.chain(common) {
        let id = arg.get_id().as_str();
        let name = arg.get_long().unwrap_or(id);
        if !own.try_contains_id(id).unwrap_or(false) || ["json", "config"].contains(&name) {
            continue;
        }
        let values = own.try_get_raw(id)?.into_iter().flatten();
        let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        let value = if name == "token" { "(hidden)".to_owned() } else { values.join(", ") };
        rows.push((name, value, config_file::origin(file.as_ref(), command, arg, own.value_source(id))));
    }
    if json {
        let row = |(name, value, from): &(&str, String, String)| json!({"name": name, "value": value, "from": from});
        output::json(&rows.iter().map(row).collect::<Vec<Value>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["option", "value", "from"]);
    for (name, value, from) in rows {
        table.add_row([name.to_owned(), value, from]);
    }
    output::line(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// `kintsu config`.
pub async fn run(command: cli::ConfigCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let settings = match command {
        cli::ConfigCommand::Check { .. } | cli::ConfigCommand::Show { .. } => {
            let settings = context.client.settings().await?;
            return show(SETTINGS.iter(), &settings, context);
        }
        cli::ConfigCommand::Get { ref name } => {
            let settings = context.client.settings().await?;
            if !context.json {
                output::line(&(row(name)?.value)(&settings))?;
                return Ok(ExitCode::SUCCESS);
            }
            (name.clone(), settings)
        }
        cli::ConfigCommand::Set { name, value } => {
            let row = row(&name)?;
            let text = if value == DEFAULT { (row.value)(&Settings::default()) } else { value };
            let change = (row.change)(&text).with_context(|| name.clone())?;
            (name, context.client.change_setting(change).await?)
        }
    };
    let (name, settings) = settings;
    show(std::iter::once(row(&name)?), &settings, context)
}

fn row(name: &str) -> anyhow::Result<&'static Row> {
    SETTINGS.iter().find(|row| row.name == name).with_context(|| {
        let names: Vec<_> = SETTINGS.iter().map(|row| row.name).collect();
        format!("expected a setting ({}), got {name:?}", names.join(", "))
    })
}

fn show<'a>(
    rows: impl Iterator<Item = &'a Row>,
    settings: &Settings,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let defaults = Settings::default();
    if context.json {
        let row = |row: &Row| {
            let (value, default) = ((row.value)(settings), (row.value)(&defaults));
            json!({"name": row.name, "value": value, "default": default, "about": row.about})
        };
        output::json(&rows.map(row).collect::<Vec<Value>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["setting", "value", "default", "what it does"]);
    for row in rows {
        let (value, default) = ((row.value)(settings), (row.value)(&defaults));
        table.add_row([row.name.into(), value, default, row.about.into()]);
    }
    output::line(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn optional(value: Option<String>) -> String {
    value.unwrap_or_else(|| NONE.into())
}

fn unless_none<T>(text: &str, parse: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    if text == NONE {
        return Ok(None);
    }
    parse(text).map(Some).with_context(|| format!("expected {NONE}, {DEFAULT} or a value"))
}

fn rate(text: &str) -> anyhow::Result<NonZeroU64> {
    let rate: Rate = text.parse()?;
    Ok(rate.bytes())
}

/// A rate as it is written: `20MB/s`.
pub fn shown(rate: NonZeroU64) -> String {
    let rate = rate.get() as f64;
    match rate {
        r if r >= 1e9 => format!("{}GB/s", r / 1e9),
        r if r >= 1e6 => format!("{}MB/s", r / 1e6),
        r => format!("{}kB/s", r / 1e3),
    }
}

fn percent(text: &str) -> anyhow::Result<NonZeroU32> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    let wrong = || format!("expected a percentage from 1% to 1000%, such as 20%, got {text:?}");
    number.filter(|percent: &NonZeroU32| percent.get() <= 1000).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, value: &str) -> anyhow::Result<ChangeSetting> {
        (row(name)?.change)(value)
    }

    #[test]
    fn values_are_read_as_they_are_shown() {
        let rate = NonZeroU64::new(20_000_000);
        assert_eq!(change("repair.max-rate", "20MB/s").unwrap(), ChangeSetting::RepairMaxRate(rate));
        assert_eq!(change("repair.max-rate", "160Mb/s").unwrap(), ChangeSetting::RepairMaxRate(rate));
        assert_eq!(change("repair.max-rate", "none").unwrap(), ChangeSetting::RepairMaxRate(None));
        assert_eq!(change("repair.target", "20%").unwrap(), ChangeSetting::RepairTarget(NonZeroU32::new(20)));
        for settings in [
            Settings::default(),
            Settings { repair_max_rate: rate, repair_target: NonZeroU32::new(5), ..Settings::default() },
        ] {
            for row in &SETTINGS {
                let change = (row.change)(&(row.value)(&settings)).unwrap();
                assert!(change.to_string().starts_with(&format!("{} ", row.name)), "{change}");
            }
        }
        assert_eq!(shown(rate.unwrap()), "20MB/s");
        assert_eq!(shown(NonZeroU64::new(1_500_000).unwrap()), "1.5MB/s");
    }

    #[test]
    fn a_wrong_value_is_told() {
        for (name, value, word) in [
            ("repair.max-rate", "20", "MB/s"),
            ("repair.max-rate", "fast", "MB/s"),
            ("repair.min-rate", "none", "MB/s"),
            ("repair.target", "20", "such as 20%"),
            ("repair.target", "0%", "1% to 1000%"),
            ("repair.hold", "half", "such as 20%"),
            ("repair.speed", "1", "repair.min-rate"),
        ] {
            let error = format!("{:#}", change(name, value).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
