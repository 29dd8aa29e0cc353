//! Examples in smaller pieces when the device is out of memory.

use anyhow::anyhow;

/// Names of the failure in the CUDA driver, cuBLAS, cuRAND and cuDNN. candle boxes their errors, so only the texts are left.
const NAMES: [&str; 4] = [
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CURAND_STATUS_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
];

/// Whether a computation failed because the device has too little free memory. The CPU reports no such error.
pub(super) fn is_out_of_memory(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    NAMES.iter().any(|name| text.contains(name))
}

/// The most examples that are computed at once. A failure for lack of memory halves them, until the end of the round or
/// evaluation.
#[derive(Debug)]
pub(super) struct Pieces {
    most: usize,
    /// What is computed, for messages: `training`, `evaluation`.
    what: &'static str,
}

impl Pieces {
    pub(super) fn new(most: usize, what: &'static str) -> Self {
        Self {
            most: most.max(1),
            what,
        }
    }

    /// What `compute` returns for the first of `positions`, and the positions that are left. If the device is out of
    /// memory, `compute` is called again with fewer positions; a call that fails must change nothing.
    pub(super) fn first<'a, T>(
        &mut self,
        positions: &'a [u32],
        mut compute: impl FnMut(&[u32]) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, &'a [u32])> {
        loop {
            let (piece, rest) = positions.split_at(self.most.min(positions.len()));
            match compute(piece) {
                Ok(computed) => return Ok((computed, rest)),
                Err(error) if is_out_of_memory(&error) => self.halve(piece.len(), &error)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn halve(&mut self, failed: usize, error: &anyhow::Error) -> anyhow::Result<()> {
        let what = self.what;
        let first = first_line(error);
        if failed <= 1 {
            return Err(anyhow!(
                "{what}: the device is out of memory for a single example, so a smaller `micro_batch` does not help: free \
                 memory on it, choose a smaller model or shorter examples, or set `device = \"cpu\"` ({first})"
            ));
        }
        self.most = failed.div_ceil(2);
        tracing::warn!(
            what,
            failed,
            examples = self.most,
            error = first,
            "the device is out of memory; computing in smaller pieces, with the same result up to rounding (to start so: \
             `micro_batch` in [train] of run.toml)"
        );
        Ok(())
    }
}

/// The message without the backtrace that candle appends.
fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")";

    #[test]
    fn the_errors_of_every_library_are_known() {
        for text in [
            DRIVER,
            "CublasError(CUBLAS_STATUS_ALLOC_FAILED)",
            "CurandError(CURAND_STATUS_ALLOCATION_FAILED)",
            "CudnnError(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)",
        ] {
            let candle = candle_core::Error::Cuda(text.into());
            assert!(is_out_of_memory(&candle.into()), "{text}");
            let wrapped = candle_core::Error::Cuda(text.into()).context("matmul").bt();
            assert!(
                is_out_of_memory(&anyhow::Error::new(wrapped).context("learner `cnn`")),
                "{text}"
            );
        }
        for text in [
            "DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory access was encountered\")",
            "CublasError(CUBLAS_STATUS_EXECUTION_FAILED)",
            "the loss became NaN in step 3",
            "",
        ] {
            assert!(!is_out_of_memory(&anyhow!(text)), "{text}");
        }
    }

    /// Fails for more than `room` examples; otherwise returns their sum. Counts the calls.
    fn device(room: usize, calls: &mut usize) -> impl FnMut(&[u32]) -> anyhow::Result<u32> {
        move |positions: &[u32]| {
            *calls += 1;
            match positions.len() > room {
                true => Err(candle_core::Error::Cuda(DRIVER.into()).into()),
                false => Ok(positions.iter().sum()),
            }
        }
    }

    #[test]
    fn a_piece_is_halved_until_it_fits_and_stays_small() {
        let positions: Vec<u32> = (0..20).collect();
        let (mut pieces, mut calls, mut sizes, mut total) = (Pieces::new(20, "training"), 0, Vec::new(), 0);
        let mut rest = positions.as_slice();
        while !rest.is_empty() {
            let (sum, after) = pieces.first(rest, device(6, &mut calls)).unwrap();
            sizes.push(rest.len() - after.len());
            (total, rest) = (total + sum, after);
        }
        // 20 and 10 fail once.
        assert_eq!((sizes, total, calls), (vec![5; 4], 190, 6));
    }

    #[test]
    fn a_single_example_that_does_not_fit_is_an_error_that_says_what_to_do() {
        let mut calls = 0;
        let error = Pieces::new(5, "evaluation")
            .first(&[1, 2, 3, 4, 5], device(0, &mut calls))
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("evaluation") && text.contains("micro_batch") && text.contains("cpu"),
            "{text}"
        );
        assert_eq!((calls, text.lines().count()), (4, 1), "{text}");
        let other = Pieces::new(5, "training").first(&[1], |_| -> anyhow::Result<()> { anyhow::bail!("broken") });
        assert_eq!(other.unwrap_err().to_string(), "broken");
    }
}
