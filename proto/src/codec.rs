//! The protobuf codec of gRPC, with smaller initial buffers.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

// Initial size of a stream's buffers. Every client keeps a watch stream open, whose messages have a few hundred bytes;
// a chunk grows its buffer as needed.
const START: usize = 512;
// Encoded bytes are passed on above this size, as in tonic.
const HAND_ON: usize = 32 * 1024;

/// Protobuf, encoded from `T` and decoded to `U`.
#[derive(Debug)]
pub(crate) struct WireCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for WireCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for WireCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(START, HAND_ON))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(START, HAND_ON))
    }
}
