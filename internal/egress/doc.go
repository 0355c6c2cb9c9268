// Package egress is the only way out of a box: the broker, which lends a box the
// models of its session without their key, and the proxy, which lends it the domains
// it was granted.
//
// The app hands it the connections that a box's listeners accepted. It imports the
// vocabulary, the runtime contract and the providers' transport; the engine and the
// store are interfaces to it. Invariants (I-28): no key goes to a box, what a request
// may ask for stands on a list, and nothing is spent that no running turn accounts
// for. (I-29): a box reaches a name that all of its lists grant, at an address that
// the server resolved, checked and connected to itself.
package egress
