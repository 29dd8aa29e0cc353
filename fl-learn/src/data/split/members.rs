//! The examples of each class.

/// Positions of the examples of each class, ascending. Shapes: `[highest label + 1]`.
pub(super) fn members(labels: &[u8]) -> Vec<Vec<u32>> {
    let classes = labels.iter().max().map_or(0, |&label| usize::from(label) + 1);
    let mut members = vec![Vec::new(); classes];
    for (at, &label) in labels.iter().enumerate() {
        members[usize::from(label)].push(at as u32);
    }
    members
}
