//! temporary
use crate::reduce::Density;
use serde::{Deserialize, Serialize};
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tracked;
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DensitySpec { Fixed(Density) }
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RankSpec { Fixed(u32) }
pub(crate) enum Chosen { Count(usize), Reaching { threshold: f32, least: usize } }
pub(crate) struct Selected { pub(crate) chosen: Chosen, pub(crate) clip: Option<f32> }
impl DensitySpec { pub(crate) fn choose(&self, values: &[f32], _: u64, _: &mut Tracked) -> Selected { let Self::Fixed(d) = self; Selected { chosen: Chosen::Count(d.count(values.len())), clip: None } } }
impl RankSpec { pub(crate) fn at(&self, _: u64) -> u32 { let Self::Fixed(r) = self; *r } }
impl Tracked { pub(crate) fn write(&self, _: &mut crate::wire::Writer<'_>) {} pub(crate) fn read(_: &mut crate::wire::Reader<'_>) -> Result<Self, crate::Error> { Ok(Self) } }
