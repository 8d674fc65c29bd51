//! The gateway over a real cluster in this process, called over HTTP by a client that signs its requests itself.

mod browsers;
mod ends;
mod limits;
mod multipart;
mod objects;
mod rights;
mod secure;
mod signed;
mod site;
mod versions;
