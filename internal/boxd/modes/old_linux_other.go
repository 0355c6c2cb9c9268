//go:build linux && !amd64

package modes

// oldCalls is empty: this architecture does not have the older system calls that amd64 has, as open and chmod.
var oldCalls []tryCall
