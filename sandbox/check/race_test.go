//go:build race

package check

// raced: the race detector is on, which multiplies the memory of a test.
const raced = true
