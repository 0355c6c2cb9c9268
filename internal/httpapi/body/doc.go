// Package body reads the bodies of requests: JSON more strictly than the standard
// library, and uploads up to a limit, from senders that must keep sending.
//
// It owns the limits of size, depth and time of a body, and the errors for bodies that
// break them. Only httpapi and the packages below it may import it; it imports the
// vocabulary. Invariant: a decoded JSON value is the one that was sent, with nothing
// dropped, replaced or taken twice, and a sender cannot keep a request open without
// sending.
package body
