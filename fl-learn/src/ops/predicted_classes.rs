//! Classes that logits say.

use candle_core::{Result, Tensor, bail};

use super::native::on_cpu;
use super::slices;

/// The class with the largest logit of each row, the first of equal ones. Shapes: `logits: [batch, classes]`.
pub(crate) fn predicted_classes(logits: &Tensor) -> Result<Vec<u32>> {
    let (batch, classes) = logits.dims2()?;
    if batch == 0 || classes == 0 {
        bail!("no class is predicted by logits {:?}", logits.dims());
    }
    if !on_cpu(logits) {
        return logits.argmax(1)?.to_vec1();
    }
    let logits = logits.contiguous()?;
    slices::with(&logits, |values| {
        Ok(values
            .chunks_exact(classes)
            .map(|row| {
                let mut best = 0;
                for (at, logit) in row.iter().enumerate() {
                    if *logit > row[best] {
                        best = at;
                    }
                }
                best as u32
            })
            .collect())
    })
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    #[test]
    fn predicted_classes_are_candles() {
        let rows = [
            [0.5f32, -1.0, 3.0],
            [7.0, 7.0, -7.0],
            [f32::NEG_INFINITY; 3],
            [f32::NAN, 1.0, 2.0],
            [1.0, f32::NAN, 2.0],
        ];
        let logits = Tensor::new(&rows, &Device::Cpu).unwrap();
        assert_eq!(predicted_classes(&logits).unwrap(), [2, 0, 0, 0, 2]);
        assert_eq!(
            predicted_classes(&logits).unwrap(),
            logits.argmax(1).unwrap().to_vec1::<u32>().unwrap()
        );
        let columns = logits.t().unwrap();
        assert_eq!(
            predicted_classes(&columns).unwrap(),
            columns.argmax(1).unwrap().to_vec1::<u32>().unwrap()
        );
        assert!(predicted_classes(&Tensor::zeros((3, 0), DType::F32, &Device::Cpu).unwrap()).is_err());
    }
}
