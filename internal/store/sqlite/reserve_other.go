//go:build !linux

package sqlite

func reserve(string, int64) {}
