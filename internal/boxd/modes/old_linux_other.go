//go:build linux && !amd64

package modes

// oldCalls are calls that only older architectures have.
var oldCalls []tryCall
