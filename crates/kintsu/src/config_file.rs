//! A file with options (TOML): for the commands that services run, so that they need no long command lines.
//!
//! A table for each such command, and one for the options of all of them; keys are the long names of options. A value from
//! the file becomes the option's default, so what is given on the command line or by a variable of the environment counts
//! more. Values are checked as on the command line. Errors name the line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The commands that the file has tables for. What follows a dash is a command of the one before it: `kintsu hdfs agent`.
pub const COMMANDS: [&str; 9] =
    ["up", "coordinator", "agent", "s3", "nbd", "page", "repack", "hdfs-coordinator", "hdfs-agent"];
/// The table with options that all commands have.
const COMMON: &str = "common";
/// Those of them that make sense in a file.
const COMMON_KEYS: [&str; 4] = ["coordinator", "token-file", "tls", "log"];

/// The file that the command line or the environment names.
pub fn named(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter().skip(1).take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(path.into());
        }
    }
    std::env::var_os("KINTSU_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The command of the command line, if the file has a table for it. Names and files may be called like a command.
pub fn served(all: &Command, args: &[OsString]) -> Option<&'static str> {
    let found = all.clone().ignore_errors(true).try_get_matches_from(args).ok()?;
    COMMANDS.into_iter().find(|command| {
        words_of(command)
            .try_fold(&found, |at, word| {
                at.subcommand().filter(|(name, _)| *name == word).map(|(_, sub)| sub)
            })
            .is_some()
    })
}

/// The words that call a command of [`COMMANDS`].
pub fn words_of(command: &str) -> impl Iterator<Item = &str> {
    command.split('-')
}

/// The commands that these words call, the outermost first: each has options.
pub fn levels<'a>(all: &'a Command, command: &str) -> Vec<&'a Command> {
    let mut at = all;
    let sub = |word| {
        at = at.find_subcommand(word)?;
        Some(at)
    };
    words_of(command).map_while(sub).collect()
}

/// Changes the command that these words call.
pub fn changed(all: Command, words: &[&str], change: impl FnOnce(Command) -> Command) -> Command {
    match words {
        [] => change(all),
        [first, rest @ ..] => all.mut_subcommand(first, |sub| changed(sub, rest, change)),
    }
}

/// The command line, where nothing must be given to this command.
pub fn lenient(all: Command, command: &str) -> Command {
    let words: Vec<&str> = words_of(command).collect();
    changed(all, &words, |sub| sub.mut_args(|arg| arg.required(false)))
}

/// A file that was read.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// One option.
#[derive(Debug)]
struct Entry {
    /// The command; `None` for an option of all commands.
    command: Option<&'static str>,
    key: String,
    /// Its argument's id.
    id: String,
    values: Vec<String>,
    line: usize,
}

impl ConfigFile {
    /// Reads a file for this command line: every key must be an option of its command. Values are not checked yet.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or has a key that is no option; with the line.
    pub fn read(path: &Path, all: &Command) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(path, &text, all)
    }

    /// The same of this text of a file.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn parse(path: &Path, text: &str, all: &Command) -> anyhow::Result<Self> {
        let line = |at: usize| text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
        let tables = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(1, |span| line(span.start));
            anyhow::anyhow!("{}:{at}: {}", path.display(), error.message())
        })?;
        let mut entries = Vec::new();
        for (name, table) in tables.get_ref() {
            let place = format!("{}:{}", path.display(), line(name.span().start));
            let Some(table) = table.get_ref().as_table() else {
                bail!("{place}: expected a table such as [coordinator], got the key {:?}", name.get_ref());
            };
            let command = COMMANDS.into_iter().find(|command| *command == name.get_ref());
            if command.is_none() && name.get_ref() != COMMON {
                let expected = COMMANDS.join("], [");
                bail!("{place}: expected [{COMMON}] or [{expected}], got [{}]", name.get_ref());
            }
            for (key, value) in table {
                let place = format!("{}:{}", path.display(), line(key.span().start));
                let argument = argument(all, command, key.get_ref()).with_context(|| place.clone())?;
                entries.push(Entry {
                    command,
                    key: key.get_ref().to_string(),
                    id: argument.get_id().to_string(),
                    values: values(value, argument).with_context(|| place)?,
                    line: line(key.span().start),
                });
            }
        }
        Ok(Self { path: path.to_owned(), entries })
    }

    /// Checks the values for this command, or with `None` all of them.
    ///
    /// # Errors
    /// A value that its option does not take; options that exclude each other.
    pub fn check(&self, all: &Command, only: Option<&str>) -> anyhow::Result<()> {
        let commands = COMMANDS.into_iter().filter(|command| only.is_none_or(|only| only == *command));
        for command in commands {
            let of_it: Vec<&Entry> = self.entries_of(command).collect();
            for entry in &of_it {
                parse(all, command, &[entry]).map_err(|error| self.wrong(entry, &error))?;
            }
            parse(all, command, &of_it).map_err(|error| {
                anyhow::anyhow!("{}: [{command}]: {}", self.path.display(), words(&error))
            })?;
        }
        Ok(())
    }

    /// The command line with these values as defaults. They must have been checked.
    pub fn applied(&self, mut all: Command) -> Command {
        for entry in &self.entries {
            let value =
                |arg: Arg| arg.default_values(entry.values.iter().map(OsString::from)).required(false);
            all = match entry.command {
                None => all.mut_arg(&entry.id, value),
                Some(command) => {
                    let has = |level: &&Command| level.get_arguments().any(|arg| arg.get_id() == &entry.id);
                    let depth = levels(&all, command).iter().position(has).map_or(0, |at| at + 1);
                    let words: Vec<&str> = words_of(command).take(depth).collect();
                    changed(all, &words, |sub| sub.mut_arg(&entry.id, value))
                }
            };
        }
        all
    }

    /// Where the value of an option of a command is.
    pub fn place(&self, command: &str, id: &str) -> Option<String> {
        let entry = self.entries_of(command).find(|entry| entry.id == id)?;
        Some(format!("{}:{}", self.path.display(), entry.line))
    }

    fn entries_of(&self, command: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.command.is_none_or(|own| own == command))
    }

    fn wrong(&self, entry: &Entry, error: &clap::Error) -> anyhow::Error {
        anyhow::anyhow!("{}:{}: {}: {}", self.path.display(), entry.line, entry.key, words(error))
    }
}

/// The option of this name: of a command, or of all.
fn argument<'a>(all: &'a Command, command: Option<&str>, key: &str) -> anyhow::Result<&'a Arg> {
    let of = command.map_or(vec![all], |command| levels(all, command));
    let own =
        |arg: &&Arg| !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version | ArgAction::HelpLong);
    let named = of.into_iter().flat_map(Command::get_arguments).filter(own).filter_map(|arg| {
        let name = arg.get_long().unwrap_or(arg.get_id().as_str());
        let of_all = || all.get_arguments().any(|common| common.get_id() == arg.get_id());
        let fits = if command.is_some() { !of_all() } else { COMMON_KEYS.contains(&name) };
        fits.then_some((name, arg))
    });
    let all: Vec<(&str, &Arg)> = named.collect();
    match all.iter().find(|(name, _)| *name == key) {
        Some((_, arg)) => Ok(arg),
        None => {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            bail!("expected an option of [{}] ({}), got {key:?}", command.unwrap_or(COMMON), names.join(", "))
        }
    }
}

/// The values of an entry as the command line would have them.
fn values(value: &Spanned<DeValue<'_>>, arg: &Arg) -> anyhow::Result<Vec<String>> {
    let many = matches!(arg.get_action(), ArgAction::Append);
    let flag = matches!(arg.get_action(), ArgAction::SetTrue);
    match value.get_ref() {
        DeValue::Boolean(set) if flag => Ok(vec![set.to_string()]),
        other if flag => bail!("expected true or false, got {}", other.type_str()),
        DeValue::Array(list) if many => list.iter().map(|one| scalar(one.get_ref())).collect(),
        one => Ok(vec![scalar(one)?]),
    }
}

fn scalar(value: &DeValue<'_>) -> anyhow::Result<String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => bail!("expected a text or a number, got {}", other.type_str()),
    }
}

/// Parses a command line with these entries as options.
fn parse(all: &Command, command: &str, entries: &[&Entry]) -> Result<(), clap::Error> {
    let mut line: Vec<OsString> = ["kintsu"].into_iter().chain(words_of(command)).map(Into::into).collect();
    let mut positional: Vec<OsString> = Vec::new();
    for entry in entries {
        let arg = levels(all, command)
            .into_iter()
            .chain([all])
            .flat_map(Command::get_arguments)
            .find(|arg| arg.get_id().as_str() == entry.id);
        match arg {
            Some(arg) if arg.get_long().is_none() => positional.extend(entry.values.iter().map(Into::into)),
            Some(arg) if matches!(arg.get_action(), ArgAction::SetTrue) => {
                if entry.values == ["true"] {
                    line.push(format!("--{}", entry.key).into());
                }
            }
            _ => line.extend(entry.values.iter().map(|value| format!("--{}={value}", entry.key).into())),
        }
    }
    if !positional.is_empty() {
        line.push("--".into());
        line.extend(positional);
    }
    lenient(all.clone(), command).try_get_matches_from(line).map(drop)
}

/// What clap says, in one line.
fn words(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_owned()
}

/// Where the value of an option comes from.
pub fn origin(
    file: Option<&ConfigFile>,
    command: &str,
    arg: &Arg,
    source: Option<clap::parser::ValueSource>,
) -> String {
    use clap::parser::ValueSource;
    let variable = || arg.get_env().and_then(OsStr::to_str).unwrap_or_default();
    match source {
        Some(ValueSource::EnvVariable) => format!("environment: {}", variable()),
        Some(ValueSource::CommandLine) => "command line".to_owned(),
        _ => file
            .and_then(|file| file.place(command, arg.get_id().as_str()))
            .unwrap_or_else(|| "default".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::cli::{self, Cli};

    fn file(text: &str) -> anyhow::Result<ConfigFile> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let read = ConfigFile::read(file.path(), &Cli::command())?;
        read.check(&Cli::command(), None)?;
        Ok(read)
    }

    fn refused(text: &str) -> String {
        let error = file(text).unwrap_err();
        let path = format!("{error:#}");
        // Without the folder, whose name is different each time.
        path[path.find(':').unwrap()..].to_owned()
    }

    fn parsed(text: &str, line: &[&str]) -> Cli {
        let command = file(text).unwrap().applied(Cli::command());
        let line = ["kintsu"].iter().chain(line);
        Cli::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let text = "[common]\ncoordinator = \"10.0.0.1:7400\"\n[agent]\ndir = \"/data/disk1\"\nrack = \"dc1/r7\"\nmoved = true\nid = 4\n";
        let cli = parsed(text, &["agent", "--id", "5"]);
        assert_eq!(cli.coordinator, "10.0.0.1:7400");
        let cli::Command::Agent(agent) = cli.command else { panic!("{cli:?}") };
        assert_eq!((agent.id, agent.dir.to_str()), (Some(5), Some("/data/disk1")));
        assert_eq!((agent.rack, agent.moved, agent.replace), (cli::Rack::Name("dc1/r7".into()), true, false));
        let text = "[s3]\nkeys = \"/k\"\nclass = [\"A=rs:n=9,k=6\", \"B=rs:n=4,k=2\"]\nmemory = \"2GiB\"\n[nbd]\nvolume = \"disk\"\n";
        let cli::Command::S3(s3) = parsed(text, &["s3"]).command else { panic!("not s3") };
        assert_eq!((s3.classes.len(), s3.memory.0), (2, 2 << 30));
        let cli::Command::Nbd(nbd) = parsed(text, &["nbd"]).command else { panic!("not nbd") };
        assert_eq!(nbd.volume, "disk");
        let text = "[repack]\nolder-than = \"1h\"\n[hdfs-coordinator]\nnamenode = \"nn:8020\"\nat-once = 4\n[hdfs-agent]\ndir = \"/k\"\ndatanode = \"10.0.0.5:9866\"\ndata-dir = [\"/a\", \"/b\"]\n";
        let cli::Command::Repack(repack) = parsed(text, &["repack"]).command else { panic!("not repack") };
        assert_eq!(repack.older_than.as_secs(), 3600);
        for (line, namenode) in [
            (&["hdfs", "coordinator"][..], "nn:8020"),
            (&["hdfs", "--namenode", "other:1", "coordinator"], "other:1"),
        ] {
            let cli::Command::Hdfs(hdfs) = parsed(text, line).command else { panic!("not hdfs") };
            let cli::HdfsCommand::Coordinator(coordinator) = hdfs.command else { panic!("{line:?}") };
            assert_eq!((hdfs.namenode.as_str(), coordinator.at_once), (namenode, 4));
        }
        let cli::Command::Hdfs(hdfs) = parsed(text, &["hdfs", "agent"]).command else { panic!("not hdfs") };
        let cli::HdfsCommand::Agent(agent) = hdfs.command else { panic!("not an agent") };
        assert_eq!(agent.data_dir, [Path::new("/a"), Path::new("/b")]);
        // What another command takes is left alone.
        assert!(matches!(parsed(text, &["nodes"]).command, cli::Command::Nodes));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let unknown = refused("[up]\nnodes = 9\nnodez = 9\n");
        assert!(unknown.starts_with(":3: expected an option of [up] (nodes, racks,"), "{unknown}");
        let bad = refused("# nine\n[up]\n\nnodes = \"nine\"\n");
        assert!(bad.starts_with(":4: nodes: invalid value 'nine'"), "{bad}");
        let beside = refused("[hdfs-agent]\nscan = \"5s\"\n");
        assert!(
            beside.starts_with(":2: expected an option of [hdfs-agent] (namenode, user, dir,"),
            "{beside}"
        );
        assert!(refused("[hdfs-agent]\ndatanode = \"x\"\n").starts_with(":2: datanode: invalid value 'x'"));
        assert!(refused("[up]\nnodes = 9\nnodes = 9\n").starts_with(":3: "));
        assert!(refused("[nodes]\n").starts_with(":1: expected [common] or [up], [coordinator],"));
        assert!(refused("[up]\ngrow = 1\n").starts_with(":2: expected true or false, got integer"));
        assert!(refused("[common]\ntoken = \"secret\"\n").starts_with(":2: expected an option of [common]"));
        assert!(refused("[up]\ncoordinator = \"x\"\n").starts_with(":2: "), "it is an option of all");
        let both = refused("[coordinator]\nrebuild = true\naccept-older = true\n");
        assert!(both.contains("[coordinator]: ") && both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn the_example_is_sound() {
        file(include_str!("../../../docs/examples/kintsu.toml")).unwrap();
    }

    #[test]
    fn each_unit_starts_a_command_with_a_file_and_is_told_of() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let told = std::fs::read_to_string(root.join("docs/operating.md")).unwrap();
        let mut units = 0;
        for entry in std::fs::read_dir(root.join("packaging/systemd")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().and_then(OsStr::to_str).unwrap();
            if path.extension() == Some(OsStr::new("timer")) {
                assert!(path.with_extension("service").exists() && told.contains(&format!("`{name}.timer`")));
                continue;
            }
            let unit = std::fs::read_to_string(&path).unwrap();
            let value =
                |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
            let start = value("ExecStart").strip_prefix("/usr/bin/kintsu ").unwrap();
            let (command, file) = start.split_once(" --config ").unwrap();
            assert!(COMMANDS.contains(&command.replace(' ', "-").as_str()), "{start}");
            assert_eq!(value("ConditionPathExists"), file);
            let row = format!("| `{name}");
            assert!(told.contains(&row) && told.contains(&file.replace("%i", "NAME")), "{row}, {file}");
            units += 1;
        }
        assert!(units >= 8, "{units} units");
    }

    #[test]
    fn the_file_is_named_by_the_command_line() {
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(named(&line(&["kintsu", "up", "--config", "a"])), Some("a".into()));
        assert_eq!(named(&line(&["kintsu", "--config=b", "up"])), Some("b".into()));
        assert_eq!(named(&line(&["kintsu", "lab", "exec", "--", "--config", "c"])), None);
    }

    #[test]
    fn names_that_are_those_of_commands_are_names() {
        let of = |words: &[&str]| {
            let args: Vec<OsString> = std::iter::once(&"kintsu").chain(words).map(OsString::from).collect();
            served(&crate::cli::Cli::command(), &args)
        };
        for (words, expected) in [
            (&["rm", "page"][..], None),
            (&["get", "s3", "agent"], None),
            (&["config", "check", "up"], None),
            (&["hdfs", "agent"], Some("hdfs-agent")),
            (&["hdfs", "--namenode", "nn:8020", "coordinator"], Some("hdfs-coordinator")),
            (&["hdfs", "status"], None),
            (&["hdfs", "get", "agent", "coordinator"], None),
            (&["nbd", "config", "--config", "nbd.toml"], Some("nbd")),
            (&["agent", "--name", "config"], Some("agent")),
            (&["--json", "s3", "--no-such-option"], Some("s3")),
        ] {
            assert_eq!(of(words), expected, "{words:?}");
        }
    }
}
