//! The device on which learners compute.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The `device` key of a client's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The first usable GPU, otherwise the CPU.
    #[default]
    Auto,
    /// One core of the CPU.
    Cpu,
    /// The GPU of this number, or an error.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            Some(("cuda", number)) => number.parse().map(Self::Cuda).map_err(|_| wrong(text)),
            _ => Err(wrong(text)),
        }
    }
}

fn wrong(text: &str) -> String {
    format!("device is `auto`, `cpu` or `cuda:0` (or another number), not `{text}`")
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(at) => write!(f, "cuda:{at}"),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert!(text.parse::<DeviceChoice>().unwrap_err().contains("auto"), "{text}");
        }
    }
}
