// Package body reads the bodies of requests. It decodes JSON more strictly than the standard
// library, limits the size of uploads, and cuts off senders that send too slowly.
//
// It owns the limits of size, depth and time of a body, and the errors for bodies that
// break them. Only httpapi and the packages below it may import it; it imports the
// vocabulary. Invariant: a decoded JSON value is the one that was sent, with nothing dropped,
// replaced or duplicated, and a sender cannot keep a request open without sending.
package body
