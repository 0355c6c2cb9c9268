//go:build !linux

package sqlite

import "context"

func childRSS(context.Context, *Store) { childFails("needs /proc") }
