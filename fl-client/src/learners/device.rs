//! The device on which a model is trained.

use std::fmt;
use std::str::FromStr;

use candle_core::Device;
use fl_proto::caught;
use serde::{Deserialize, Serialize};

use crate::ops;

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

impl DeviceChoice {
    /// Opens the device. `Auto` logs why it falls back to the CPU.
    ///
    /// # Errors
    /// If a GPU is requested and this program or this machine has none.
    pub(super) fn open(self) -> anyhow::Result<Device> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda(_) if !candle_core::utils::cuda_is_available() => {
                anyhow::bail!("device `{self}` needs a program built with `--features cuda`; this one has only `cpu`")
            }
            Self::Cuda(at) => cuda(at).map_err(|why| anyhow::anyhow!("device `{self}` cannot be used: {why}")),
            Self::Auto if !candle_core::utils::cuda_is_available() => {
                tracing::info!("computing on the cpu: built without the feature `cuda`");
                Ok(Device::Cpu)
            }
            Self::Auto => Ok(cuda(0).unwrap_or_else(|why| {
                tracing::warn!(why, "no usable gpu; computing on the cpu");
                Device::Cpu
            })),
        }
    }
}

/// The GPU of this number, or a one-line reason.
fn cuda(at: usize) -> Result<Device, String> {
    one_line(|| ops::open_gpu(at))
}

/// What `open` returns, or a one-line reason. A library of CUDA that is opened at run time and lacks a function is a panic in
/// candle, and must not end the client; candle's errors end with a backtrace where the system asks for backtraces.
fn one_line<T>(open: impl FnOnce() -> candle_core::Result<T>) -> Result<T, String> {
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    // The text of an error comes from the library too.
    caught(|| open().map_err(|error| first(error.to_string()))).unwrap_or_else(Err)
}

impl DeviceChoice {
    /// The device that would be used, and why it is not a GPU if this program could use one.
    ///
    /// # Errors
    /// As for a learner that is built: a GPU is asked for, and cannot be used.
    pub(crate) fn found(self) -> anyhow::Result<(&'static str, Option<String>)> {
        let gpu = |at| cuda(at).err();
        match self {
            Self::Auto if candle_core::utils::cuda_is_available() => Ok(match gpu(0) {
                None => ("GPU", None),
                Some(why) => ("CPU", Some(why)),
            }),
            Self::Auto | Self::Cpu => Ok(("CPU", None)),
            Self::Cuda(_) => self.open().map(|_| ("GPU", None)),
        }
    }
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

    #[test]
    fn a_gpu_that_is_not_there_is_an_error_of_one_line() {
        let why = DeviceChoice::Cuda(4_096).open().unwrap_err().to_string();
        let expected = match candle_core::utils::cuda_is_available() {
            true => "`cuda:4096` cannot be used",
            false => "`cuda:4096` needs a program built with `--features cuda`",
        };
        assert!(why.contains(expected) && why.lines().count() == 1, "{why}");
    }

    #[test]
    fn errors_and_panics_of_candle_become_one_line() {
        let error = || candle_core::bail!("no device\nbacktrace");
        assert_eq!(one_line::<()>(error), Err("no device".to_owned()));
        assert_eq!(one_line(|| Ok(7)), Ok(7));
        let name = String::from("cuda");
        assert_eq!(
            one_line::<()>(move || panic!("no {name}\nat")),
            Err("no cuda".to_owned())
        );
        assert_eq!(one_line::<()>(|| panic!("no library")), Err("no library".to_owned()));
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn auto_falls_back_to_the_cpu() {
        assert!(DeviceChoice::Auto.open().unwrap().is_cpu());
    }
}
