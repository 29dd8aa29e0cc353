//! The device on which a model is trained.

use candle_core::Device;
use fl_client::DeviceChoice;
use fl_proto::caught;

use crate::ops;

pub(super) fn open(device: DeviceChoice) -> anyhow::Result<Device> {
    match device {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        DeviceChoice::Cuda(_) if !candle_core::utils::cuda_is_available() => {
            anyhow::bail!("device `{device}` needs a program built with `--features cuda`; this one has only `cpu`")
        }
        DeviceChoice::Cuda(at) => cuda(at).map_err(|why| anyhow::anyhow!("device `{device}` cannot be used: {why}")),
        DeviceChoice::Auto if !candle_core::utils::cuda_is_available() => {
            tracing::info!("computing on the cpu: built without the feature `cuda`");
            Ok(Device::Cpu)
        }
        DeviceChoice::Auto => Ok(cuda(0).unwrap_or_else(|why| {
            tracing::warn!(why, "no usable gpu; computing on the cpu");
            Device::Cpu
        })),
    }
}

/// The GPU of this number, or a one-line reason.
fn cuda(at: usize) -> Result<Device, String> {
    one_line(|| ops::open_gpu(at))
}

/// What `open` returns, or a one-line reason. A library of CUDA that is opened at run time and lacks a function is a panic in
/// candle, and must not end the client; candle's errors end with a backtrace where the system asks for backtraces.
fn one_line<T>(open: impl FnOnce() -> candle_core::Result<T>) -> Result<T, String> {
    // The text of an error comes from the library too.
    let opened = caught(|| open().map_err(|error| error.to_string())).unwrap_or_else(Err);
    opened.map_err(|text| text.lines().next().unwrap_or_default().to_owned())
}

/// The device that would be used, and why it is not a GPU if this program could use one.
pub(crate) fn found(device: DeviceChoice) -> anyhow::Result<(&'static str, Option<String>)> {
    match device {
        DeviceChoice::Auto if candle_core::utils::cuda_is_available() => Ok(match cuda(0).err() {
            None => ("GPU", None),
            Some(why) => ("CPU", Some(why)),
        }),
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(("CPU", None)),
        DeviceChoice::Cuda(_) => open(device).map(|_| ("GPU", None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_an_error_of_one_line() {
        let why = open(DeviceChoice::Cuda(4_096)).unwrap_err().to_string();
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
        assert!(open(DeviceChoice::Auto).unwrap().is_cpu());
    }
}
