//! gRPC messages in MessagePack with named fields: self-describing, so that a field can be added
//! without breaking older readers.

use bytes::{Buf, BufMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

/// The codec of both services.
#[derive(Debug)]
pub struct MessagePack<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for MessagePack<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for MessagePack<T, U>
where
    T: Serialize + Send + 'static,
    U: DeserializeOwned + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = MessageEncoder<T>;
    type Decoder = MessageDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        MessageEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        MessageDecoder(PhantomData)
    }
}

/// Encodes one message type.
#[derive(Debug)]
pub struct MessageEncoder<T>(PhantomData<T>);

impl<T: Serialize> Encoder for MessageEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        rmp_serde::encode::write_named(&mut dst.writer(), &item)
            .map_err(|e| Status::new(Code::Internal, format!("cannot encode a message: {e}")))
    }
}

/// Decodes one message type.
#[derive(Debug)]
pub struct MessageDecoder<U>(PhantomData<U>);

impl<U: DeserializeOwned> Decoder for MessageDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The message lies in one piece: this takes it without a copy.
        rmp_serde::from_slice(&src.copy_to_bytes(src.remaining()))
            .map(Some)
            .map_err(|e| Status::new(Code::InvalidArgument, format!("not a message of this protocol: {e}")))
    }
}
