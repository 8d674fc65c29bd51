//! The age of a request that is signed by Signature Version 2: an old one must not be sent again by somebody who has seen
//! it. (Version 4 signs its date, and the library checks it.)

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use s3s::{S3ErrorCode, S3Result};

use crate::error::because;

/// How far the clocks of client and server may be apart.
const MOST: Duration = Duration::from_secs(15 * 60);

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Checks the date of a request, if it is one of Version 2.
///
/// # Errors
/// `AccessDenied`: it has no date; `RequestTimeTooSkewed`.
pub(crate) fn check(headers: &HeaderMap, now: SystemTime) -> S3Result<()> {
    let is_old_way =
        headers.get(http::header::AUTHORIZATION).is_some_and(|way| way.as_bytes().starts_with(b"AWS "));
    if !is_old_way {
        return Ok(());
    }
    let value = headers.get("x-amz-date").or_else(|| headers.get(http::header::DATE));
    let date = value.and_then(|value| value.to_str().ok()).and_then(seconds);
    let Some(date) = date else {
        return Err(because(S3ErrorCode::AccessDenied, "expected a date in x-amz-date or Date"));
    };
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now.abs_diff(date) > MOST.as_secs() {
        let text = format!("expected a date at most {} s from the server's, got another one", MOST.as_secs());
        return Err(because(S3ErrorCode::RequestTimeTooSkewed, text));
    }
    Ok(())
}

/// The seconds since 1970 of `Tue, 07 Jul 2026 21:53:04 GMT`, or of `20260707T215304Z`.
pub(crate) fn seconds(date: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    let (day, month, year, time) = if let Some((_, rest)) = date.split_once(", ") {
        let [day, month, year, time, _zone] = rest.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
        let time = time.split(':').map(number).collect::<Option<Vec<_>>>()?;
        (number(day)?, month, number(year)?, time)
    } else {
        let (date, time) = date.strip_suffix('Z')?.split_once('T')?;
        let time = [time.get(..2)?, time.get(2..4)?, time.get(4..)?];
        let time = time.into_iter().map(number).collect::<Option<Vec<_>>>()?;
        (number(date.get(6..)?)?, number(date.get(4..6)?)?, number(date.get(..4)?)?, time)
    };
    let [hour, minute, second] = time.try_into().ok()?;
    let fits = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !fits {
        return None;
    }
    // Years that begin in March, so that the day that is sometimes missing is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1;
    // From the first of March of the year 0 to 1970.
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_since_1970() {
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Tue, 29 Feb 2000 12:00:01 GMT"), Some(951_825_601));
        assert_eq!(seconds("20261124T054612Z"), Some(1_795_499_172));
        for wrong in
            ["", "Bad Date", "Tue, 07 Jul 1950 21:53:04 GMT", "20261324T054612Z", "Tue, 07 Jul 2010", "é"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn old_requests_are_refused() {
        let at = |date: &str, way: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-date", date.parse().unwrap());
            headers.insert("authorization", way.parse().unwrap());
            check(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_499_172))
        };
        at("20261124T053800Z", "AWS A:x").unwrap();
        let code = |date, way| at(date, way).unwrap_err().code().clone();
        assert_eq!(code("20261124T052800Z", "AWS A:x"), S3ErrorCode::RequestTimeTooSkewed);
        assert_eq!(code("soon", "AWS A:x"), S3ErrorCode::AccessDenied);
        at("soon", "AWS4-HMAC-SHA256 ...").unwrap();
    }
}
