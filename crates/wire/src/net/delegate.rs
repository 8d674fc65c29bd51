//! Reading and writing for enums of two kinds of connections: each call goes to the connection that there is. It is the first
//! field of its variant.

macro_rules! reads {
    ($name:ty: $one:ident, $other:ident) => {
        impl ::tokio::io::AsyncRead for $name {
            fn poll_read(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buf: &mut ::tokio::io::ReadBuf<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    Self::$one(io, ..) => ::std::pin::Pin::new(io).poll_read(cx, buf),
                    Self::$other(io, ..) => ::std::pin::Pin::new(io).poll_read(cx, buf),
                }
            }
        }
    };
}

macro_rules! writes {
    ($name:ty: $one:ident, $other:ident) => {
        impl ::tokio::io::AsyncWrite for $name {
            fn poll_write(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buf: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    Self::$one(io, ..) => ::std::pin::Pin::new(io).poll_write(cx, buf),
                    Self::$other(io, ..) => ::std::pin::Pin::new(io).poll_write(cx, buf),
                }
            }

            fn poll_write_vectored(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bufs: &[::std::io::IoSlice<'_>],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    Self::$one(io, ..) => ::std::pin::Pin::new(io).poll_write_vectored(cx, bufs),
                    Self::$other(io, ..) => ::std::pin::Pin::new(io).poll_write_vectored(cx, bufs),
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    Self::$one(io, ..) => io.is_write_vectored(),
                    Self::$other(io, ..) => io.is_write_vectored(),
                }
            }

            fn poll_flush(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    Self::$one(io, ..) => ::std::pin::Pin::new(io).poll_flush(cx),
                    Self::$other(io, ..) => ::std::pin::Pin::new(io).poll_flush(cx),
                }
            }

            fn poll_shutdown(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    Self::$one(io, ..) => ::std::pin::Pin::new(io).poll_shutdown(cx),
                    Self::$other(io, ..) => ::std::pin::Pin::new(io).poll_shutdown(cx),
                }
            }
        }
    };
}
