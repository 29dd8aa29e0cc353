//! The shape of an example, from the extents of an array.

use serde::{Deserialize, Serialize};

use crate::data::error::Error;

/// Order of the extents of an image with several channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Channels, height, width, as PyTorch has them.
    Chw,
    /// Height, width, channels, as image files, numpy and TensorFlow have them.
    Hwc,
}

/// Most values of an example.
const MAX_VALUES: u64 = 1 << 28;
/// Images have at most this many channels, if `order` is not given.
const MAX_CHANNELS: u64 = 4;

pub(crate) fn check(shape: Option<[usize; 3]>) -> Result<(), Error> {
    let len = |shape: [usize; 3]| {
        shape
            .iter()
            .try_fold(1u64, |len, &extent| len.checked_mul(extent as u64))
    };
    if shape.is_some_and(|shape| !len(shape).is_some_and(|len| (1..=MAX_VALUES).contains(&len))) {
        let why = format!("must be three numbers above 0 with a product of at most {MAX_VALUES}");
        return Err(Error::config("shape", why));
    }
    Ok(())
}

/// Channels, height and width of an example, and whether the values have the channels last. `extents`: those of the array, the
/// number of examples first; `given`: the key `shape`.
pub(super) fn of(
    extents: &[u64],
    given: Option<[usize; 3]>,
    order: Option<Order>,
) -> Result<([usize; 3], bool), String> {
    let Some((&examples, own)) = extents.split_first() else {
        return Err("holds a single number; the first extent must be the number of examples".to_owned());
    };
    if examples == 0 {
        return Err("holds no example".to_owned());
    }
    if examples > u64::from(u32::MAX) {
        return Err(format!("holds {examples} examples; at most {} are supported", u32::MAX));
    }
    let len = own.iter().try_fold(1u64, |len, &extent| len.checked_mul(extent));
    let Some(len) = len.filter(|len| (1..=MAX_VALUES).contains(len)) else {
        return Err(format!(
            "has examples of the shape {own:?}; an example must have 1 to {MAX_VALUES} values"
        ));
    };
    // `len` bounds every extent.
    let own: Vec<usize> = own.iter().map(|&extent| extent as usize).collect();
    if order.is_some() && own.len() != 3 {
        return Err(format!(
            "`order` is for examples of 3 extents; these have {}",
            own.len()
        ));
    }
    let is_last = order == Some(Order::Hwc);
    let natural = match *own.as_slice() {
        [] => [1, 1, 1],
        [values] => [1, 1, values],
        [height, width] => [1, height, width],
        [height, width, channels] if is_last => [channels, height, width],
        [channels, height, width] => {
            let looks_last = width as u64 <= MAX_CHANNELS && channels as u64 > MAX_CHANNELS;
            if order.is_none() && given.is_none() && looks_last {
                return Err(format!(
                    "has examples of the shape {own:?}, whose last extent looks like channels; set `order` to \"hwc\" if it \
                     is, or else to \"chw\""
                ));
            }
            [channels, height, width]
        }
        _ if given.is_some() => [1, 1, 1],
        _ => {
            return Err(format!(
                "has examples of the shape {own:?}; set `shape` to channels, height and width"
            ));
        }
    };
    let Some(shape) = given else {
        return Ok((natural, is_last));
    };
    if shape.iter().product::<usize>() as u64 != len {
        return Err(format!(
            "has examples of the shape {own:?}, which is {len} values; `shape` = {shape:?} is {}",
            shape.iter().product::<usize>()
        ));
    }
    if is_last && shape != natural {
        return Err(format!(
            "has images of the shape {natural:?} (channels, height, width), but `shape` is {shape:?}"
        ));
    }
    Ok((shape, is_last))
}

/// Reorders each example from height, width, channels to channels, height, width. Shapes: `values: [examples * shape's product]`;
/// `shape` is channels, height, width.
pub(super) fn channels_first<T: Copy>(values: &mut [T], [channels, height, width]: [usize; 3]) {
    let plane = height * width;
    let mut image = Vec::with_capacity(channels * plane);
    for example in values.chunks_exact_mut((channels * plane).max(1)) {
        image.clear();
        for channel in 0..channels {
            image.extend(example[channel..].iter().step_by(channels));
        }
        example.copy_from_slice(&image);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_become_channels_height_and_width() {
        for (extents, order, shape, last) in [
            (vec![9], None, [1, 1, 1], false),
            (vec![9, 4], None, [1, 1, 4], false),
            (vec![9, 8, 6], None, [1, 8, 6], false),
            (vec![9, 3, 32, 30], None, [3, 32, 30], false),
            (vec![9, 32, 30, 3], Some(Order::Hwc), [3, 32, 30], true),
            (vec![9, 32, 30, 3], Some(Order::Chw), [32, 30, 3], false),
        ] {
            assert_eq!(of(&extents, None, order), Ok((shape, last)), "{extents:?}");
        }
        assert_eq!(of(&[9, 784], Some([1, 28, 28]), None), Ok(([1, 28, 28], false)));
        assert_eq!(of(&[9, 6, 128], Some([6, 1, 128]), None), Ok(([6, 1, 128], false)));
        assert_eq!(of(&[9, 2, 2, 2, 2], Some([4, 2, 2]), None), Ok(([4, 2, 2], false)));
    }

    #[test]
    fn extents_that_do_not_tell_the_shape_are_refused() {
        for (extents, given, order, part) in [
            (vec![], None, None, "single number"),
            (vec![0, 4], None, None, "no example"),
            (vec![1 << 40, 4], None, None, "at most"),
            (vec![9, 0], None, None, "1 to"),
            (vec![9, 1 << 40, 1 << 40], None, None, "1 to"),
            (vec![9, 32, 32, 3], None, None, "`order`"),
            (vec![9, 32, 32], None, Some(Order::Hwc), "3 extents"),
            (vec![9, 2, 2, 2, 2], None, None, "set `shape`"),
            (vec![9, 783], Some([1, 28, 28]), None, "783 values"),
            (vec![9, 4, 6, 3], Some([3, 6, 4]), Some(Order::Hwc), "[3, 4, 6]"),
        ] {
            let why = of(&extents, given, order).unwrap_err();
            assert!(why.contains(part), "{extents:?}: {why}");
        }
        assert!(check(Some([1, 0, 3])).is_err() && check(Some([usize::MAX, 2, 3])).is_err());
    }

    #[test]
    fn channels_come_first() {
        let mut values = vec![1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16];
        channels_first(&mut values, [3, 1, 2]);
        assert_eq!(values, [1, 4, 2, 5, 3, 6, 11, 14, 12, 15, 13, 16]);
    }
}
