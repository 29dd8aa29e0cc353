//! What precedes the values of an array: their type and the extents.

use super::element::Element;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) element: Element,
    /// Extents, the number of examples first.
    pub(crate) shape: Vec<u64>,
    /// Number of values: the product of the extents.
    pub(crate) len: u64,
}

impl Header {
    pub(crate) fn new(element: Element, shape: Vec<u64>) -> Result<Self, String> {
        let len = shape.iter().try_fold(1u64, |len, &extent| len.checked_mul(extent));
        match len.filter(|len| {
            len.checked_mul(element.bytes() as u64)
                .is_some_and(|bytes| bytes < 1 << 63)
        }) {
            Some(len) => Ok(Self { element, shape, len }),
            None => Err(format!("the shape {shape:?} is more than a file can hold")),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        // `new` has checked that this does not overflow.
        self.len * self.element.bytes() as u64
    }
}
