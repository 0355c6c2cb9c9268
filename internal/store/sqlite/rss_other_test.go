//go:build !linux

package sqlite

import "context"

func childRSS(context.Context, *opened) { childFails("needs /proc") }
