// Package problem answers failed requests with problem documents, and logs internal errors.
//
// It owns the problem document (RFC 9457) with its headers, the rule which values of a
// request a document may repeat, and the log line of an internal error. Only httpapi, the packages
// below it and cmd/holdfast may import it; it imports the vocabulary. Invariant (I-22): a
// document repeats a value of a request only at places that were passed to Allow, because the
// operation's schema leaves no room for a secret there.
package problem
