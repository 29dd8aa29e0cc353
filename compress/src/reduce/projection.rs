//! Random signed sums of blocks of values (Johnson and Lindenstrauss 1984, Achlioptas 2003).

/// Values projected at a time.
pub(super) const BLOCK: usize = 4096;
