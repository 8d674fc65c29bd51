//! Tests of the crate as its users see it. One program, because linking one for each file would take longer than
//! running them.

mod advise;
mod backup;
mod bad_input;
mod bench;
mod cluster;
mod codes;
mod compare;
mod confirm;
mod first_hour;
mod full_disk;
mod full_metadata_disk;
mod generate;
mod get_file;
mod give_way;
mod health;
mod kill;
mod lab;
mod lab_run;
mod load;
mod memory;
mod nbd;
mod operate;
mod page;
mod rates;
mod rebuild;
mod roles;
mod rot;
mod s3;
mod sim;
mod slips;
mod snapshots;
mod streams;
mod volumes;
