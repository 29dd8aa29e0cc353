//! The form of reducers that send values with their places: indices, then values; all others are zero. A tensor of zeros is
//! an empty support.

use crate::error::Error;
use crate::reduce::form::{Form, K, Part, ReducedPart, Reduction};
use crate::reduce::method::{ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::Planes;
use crate::threads::both;

pub(crate) static FORM: Form = Form {
    tag: 1,
    second: None,
    numbers: &[K],
    words: |[k, ..], len| match k {
        0 => "all zero".to_owned(),
        _ => format!("support {k} of {len}"),
    },
    parts: |[k, ..], _| vec![Part::indexed(k as usize)],
    decode: |_, planes, sink| {
        let mut sparse = planes.sparse(0)?;
        while let Some((indices, values)) = sparse.next_block()? {
            sink.sparse(0, indices, values);
        }
        sparse.finish()
    },
};

/// The choice to send the values at the ascending indices that `support` gives, cut to the magnitude `clip`.
pub(crate) fn chosen<F>(sends: Sends, clip: Option<f32>, support: F) -> ReducerChoice
where
    F: Fn(&TensorValues<'_>) -> Vec<u32> + Send + Sync + 'static,
{
    ReducerChoice::new(sends, move |tensor, _| {
        let mut part = ReducedPart::indexed(tensor.threads, tensor.values, support(tensor));
        if let Some(clip) = clip {
            part.values
                .to_mut()
                .iter_mut()
                .for_each(|value: &mut f32| *value = value.clamp(-clip, clip));
        }
        Ok(Reduction {
            form: &FORM,
            numbers: [part.values.len() as u32, 0, 0, 0],
            parts: vec![part],
        })
    })
}

/// A tensor of zeros.
pub(crate) fn empty() -> Reduction<'static> {
    Reduction {
        form: &FORM,
        numbers: [0; 4],
        parts: Vec::new(),
    }
}

/// All indices and all values, each on a thread if there may be two.
pub(crate) fn whole(threads: usize, planes: &Planes<'_>) -> Result<(Vec<u32>, Vec<f32>), Error> {
    let part = planes.part(0)?;
    let read = || {
        let mut all = vec![0; part.count];
        if let Some(indices) = &part.indices {
            let mut open = indices.open()?;
            open.read(&mut all).and_then(|()| open.finish())?;
        }
        Ok(all)
    };
    let (indices, values) = both(threads, read, || part.whole());
    Ok((indices?, values?))
}
