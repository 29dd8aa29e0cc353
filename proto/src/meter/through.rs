//! Streams around a field `io`: what they do not change passes through to it.

/// In an `impl AsyncWrite`: the named methods, each as the field `io` has it.
#[macro_export]
macro_rules! through_io {
    ($($method:ident),+) => { $($crate::through_io!(@$method);)+ };
    (@write) => {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            buf: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            std::pin::Pin::new(&mut self.io).poll_write(cx, buf)
        }

        fn poll_write_vectored(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bufs: &[std::io::IoSlice<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            std::pin::Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
        }
    };
    (@is_vectored) => {
        fn is_write_vectored(&self) -> bool {
            self.io.is_write_vectored()
        }
    };
    (@flush) => {
        fn poll_flush(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.io).poll_flush(cx)
        }
    };
    (@shutdown) => {
        fn poll_shutdown(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.io).poll_shutdown(cx)
        }
    };
}
