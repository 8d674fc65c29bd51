//! Operations recorded in a file.
//!
//! One line for each operation, without a heading: `seconds,operation,key,bytes`. The seconds count from any moment and
//! never go back. The operation is `get` or `read`, `put`, `set` or `update`. The key is any text without a comma. The
//! bytes are the length of the value; a read may leave them out. Empty lines and lines after `#` are skipped.

use std::collections::BTreeMap;

use super::{Operation, Record, Scale, Verb, Work};
use crate::error::{ExperimentError, Result};

/// The workload in the text of a file. A key has the largest length that any line gives it, and all keys are there
/// before the first operation. Of the operations, the first `scale.count` are taken.
///
/// # Errors
/// `Invalid` with the number of the line.
pub fn from_csv(name: &str, text: &str, scale: Scale) -> Result<Work> {
    let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
    let mut records: Vec<Record> = Vec::new();
    let mut operations: Vec<Operation> = Vec::new();
    let mut first = None;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let what = || format!("line {number}");
        let invalid = |expected: &str, got: &str| ExperimentError::invalid(what(), expected, got);
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (&[seconds, verb, key, bytes] | &[seconds, verb, key, bytes, ..]) = fields.as_slice() else {
            return Err(invalid("seconds,operation,key,bytes", line));
        };
        let seconds: f64 = seconds.parse().map_err(|_| invalid("seconds first", seconds))?;
        let at = seconds - *first.get_or_insert(seconds);
        if !at.is_finite() || operations.last().is_some_and(|last| at < last.at) {
            return Err(invalid("seconds that never go back", line));
        }
        let verb = match verb.to_ascii_lowercase().as_str() {
            "get" | "read" => Verb::Read,
            "put" | "set" | "update" => Verb::Update,
            other => return Err(invalid("get, read, put, set or update", other)),
        };
        let bytes = match bytes {
            "" if verb == Verb::Read => 0,
            text => text.parse().map_err(|_| invalid("a number of bytes", text))?,
        };
        let bytes = if bytes == 0 { 1 } else { scale.size(bytes as f64) };
        let key = *numbers.entry(key).or_insert_with(|| {
            records.push(Record { key_bytes: key.len().min(250) as u16, bytes });
            records.len() as u64 - 1
        });
        if let Some(record) = records.get_mut(key as usize) {
            record.bytes = record.bytes.max(bytes);
        }
        operations.push(Operation { at, verb, key, bytes, values: 1 });
    }
    if operations.is_empty() {
        return Err(ExperimentError::invalid("trace", "a line for each operation", "none"));
    }
    operations.truncate(scale.number(operations.len() as u64) as usize);
    for operation in &mut operations {
        operation.bytes = records.get(operation.key as usize).map_or(1, |record| record.bytes);
    }
    let operations = Box::new(operations.into_iter());
    Ok(Work { name: name.to_owned(), records, key_bytes: 0, operations })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_operations() {
        let text = "# a trace\n10.5,get,a,\n10.5,PUT,b,4000\n\n12,set,a,2000\n";
        let work = from_csv("t", text, Scale { sizes: 0.5, count: 1.0 }).unwrap();
        assert_eq!(work.records.iter().map(|record| record.bytes).collect::<Vec<_>>(), [1000, 2000]);
        let operation = |at, verb, key, bytes| Operation { at, verb, key, bytes, values: 1 };
        assert_eq!(
            work.operations.collect::<Vec<_>>(),
            [
                operation(0.0, Verb::Read, 0, 1000),
                operation(0.0, Verb::Update, 1, 2000),
                operation(1.5, Verb::Update, 0, 1000)
            ]
        );
        let half = from_csv("t", text, Scale { sizes: 1.0, count: 0.34 }).unwrap();
        assert_eq!(half.operations.count(), 1);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_told() {
        for (text, expected) in [
            ("", "a line for each operation"),
            ("1,get", "seconds,operation,key,bytes"),
            ("soon,get,a,1", "seconds first"),
            ("2,get,a,1\n1,get,a,1", "line 2"),
            ("1,list,a,1", "get, read, put"),
            ("1,put,a,many", "a number of bytes"),
            ("nan,put,a,1", "never go back"),
        ] {
            let error = from_csv("t", text, Scale::default()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
