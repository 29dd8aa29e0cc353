//! Tensors in messages: name, shape, type and role.

use std::collections::BTreeSet;

use fl_compress::{Dtype, Layout, MAX_TENSORS, Role, TensorSpec};

use crate::error::ProtocolError;
use crate::wire;

pub(crate) fn layout_to_wire(layout: &Layout) -> Vec<wire::TensorShape> {
    layout
        .tensors()
        .iter()
        .map(|tensor: &fl_compress::Tensor| to_wire(&tensor.name, &tensor.shape, tensor.dtype, tensor.role))
        .collect()
}

pub(crate) fn aside_to_wire(aside: &[TensorSpec]) -> Vec<wire::TensorShape> {
    aside
        .iter()
        .map(|tensor: &TensorSpec| to_wire(&tensor.name, &tensor.shape, tensor.dtype, tensor.role))
        .collect()
}

fn to_wire(name: &str, shape: &[usize], dtype: Dtype, role: Role) -> wire::TensorShape {
    wire::TensorShape {
        name: name.to_owned(),
        dims: shape.iter().map(|&extent| extent as u64).collect(),
        r#type: dtype as i32,
        role: role as i32,
    }
}

/// The layout of a message.
///
/// # Errors
/// `Invalid` as [`Layout::of`].
pub(crate) fn layout(shapes: Vec<wire::TensorShape>) -> Result<Layout, ProtocolError> {
    let tensors = shapes.into_iter().map(|shape| of_wire("layout", shape));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    Layout::of(tensors).map_err(|why| ProtocolError::invalid("layout", why.to_string()))
}

/// The tensors of a message that do not travel, sorted by name.
///
/// # Errors
/// `Invalid` if a role travels, a name occurs twice or is in `layout`, or a limit of layouts is exceeded.
pub(crate) fn aside(shapes: Vec<wire::TensorShape>, layout: &Layout) -> Result<Vec<TensorSpec>, ProtocolError> {
    const FIELD: &str = "aside";
    let invalid = |why: String| ProtocolError::invalid(FIELD, why);
    if shapes.len() > MAX_TENSORS {
        return Err(invalid(format!("{} tensors are more than {MAX_TENSORS}", shapes.len())));
    }
    let mut names: BTreeSet<&str> = layout.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    let tensors = shapes.into_iter().map(|shape| of_wire(FIELD, shape));
    let mut tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    for tensor in &tensors {
        tensor.check().map_err(|why| invalid(why.to_string()))?;
        if tensor.role.travels() {
            let role = tensor.role.name();
            return Err(invalid(format!("tensor `{}` has the role {role}", tensor.name)));
        }
        if !names.insert(&tensor.name) {
            return Err(invalid(format!("tensor `{}` is given twice", tensor.name)));
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

fn of_wire(field: &'static str, shape: wire::TensorShape) -> Result<TensorSpec, ProtocolError> {
    let invalid = |why: String| ProtocolError::invalid(field, why);
    let wire::TensorShape {
        name,
        dims,
        r#type,
        role,
    } = shape;
    let dims = dims.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
    let find = |number: i32| usize::try_from(number).ok();
    let unknown = |what: &str, number: i32| {
        invalid(format!(
            "tensor `{name}` has the unknown {what} {number}; update this program"
        ))
    };
    let dtype = find(r#type).and_then(|at| Dtype::ALL.get(at)).copied();
    let role_found = find(role).and_then(|at| Role::ALL.get(at)).copied();
    Ok(TensorSpec {
        shape: dims.map_err(|why| invalid(why.to_string()))?,
        dtype: dtype.ok_or_else(|| unknown("type", r#type))?,
        role: role_found.ok_or_else(|| unknown("role", role))?,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: Dtype, role: Role) -> TensorSpec {
        TensorSpec::new(name, &[2, 3], dtype, role)
    }

    #[test]
    fn every_type_and_role_survives_the_wire() {
        let travelling = Dtype::ALL.into_iter().map(|dtype| {
            let role = if dtype.is_float() { Role::Buffer } else { Role::Counter };
            spec(dtype.name(), dtype, role)
        });
        let layout = Layout::of(travelling.chain([spec("w", Dtype::Bf16, Role::Trained)])).unwrap();
        assert_eq!(super::layout(layout_to_wire(&layout)).unwrap(), layout);
        let tensors = vec![
            spec("base", Dtype::I32, Role::Frozen),
            spec("head", Dtype::F64, Role::Local),
        ];
        assert_eq!(aside(aside_to_wire(&tensors), &layout).unwrap(), tensors);
    }

    #[test]
    fn numbers_are_those_of_the_schema() {
        for (dtype, wire) in Dtype::ALL.into_iter().zip(0..) {
            let name = wire::TensorType::try_from(wire).unwrap().as_str_name();
            assert_eq!(name, format!("TENSOR_TYPE_{}", dtype.name()));
            assert_eq!(dtype as i32, wire);
        }
        for (role, wire) in Role::ALL.into_iter().zip(0..) {
            let name = wire::TensorRole::try_from(wire).unwrap().as_str_name();
            assert_eq!(name, format!("TENSOR_ROLE_{}", role.name().to_uppercase()));
            assert_eq!(role as i32, wire);
        }
    }

    #[test]
    fn what_is_no_layout_is_refused_by_name() {
        let layout = Layout::of([spec("w", Dtype::F32, Role::Trained)]).unwrap();
        let refused = |change: &dyn Fn(&mut wire::TensorShape)| {
            let mut shapes = aside_to_wire(&[spec("head", Dtype::F32, Role::Local)]);
            change(&mut shapes[0]);
            aside(shapes, &layout).unwrap_err().to_string()
        };
        assert!(refused(&|shape| shape.role = 0).contains("`head` has the role trained"));
        assert!(refused(&|shape| shape.role = 9).contains("`head` has the unknown role 9"));
        assert!(refused(&|shape| shape.r#type = -1).contains("unknown type -1"));
        assert!(refused(&|shape| shape.name = "w".to_owned()).contains("`w` is given twice"));
        assert!(refused(&|shape| shape.dims = vec![u64::MAX, 2]).contains("head"));
        let frozen = layout_to_wire(&layout)
            .into_iter()
            .map(|shape| wire::TensorShape { role: 4, ..shape });
        assert!(
            super::layout(frozen.collect())
                .unwrap_err()
                .to_string()
                .contains("layout")
        );
    }
}
