//go:build !race

package wire_test

// raceFactor is how much more is allocated under the race detector.
const raceFactor = 1
