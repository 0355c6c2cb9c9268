// Package egress is the only way out of a box: the broker passes the box's model requests to
// the provider without showing the box the key, and the proxy connects the box to the domains
// that it was granted.
//
// Package app passes it the connections that a box's listeners accepted. It imports the
// vocabulary, the runtime contract, journal, meter, sandbox/check and the providers' transport; the engine
// is an interface to it. Invariants (I-28): no provider's key reaches a box, a model request uses
// only allowed features, and only a running turn can spend tokens. (I-29): a box reaches only
// names that all of its lists grant, at addresses that the server itself resolved, checked and
// connected to.
package egress
