// Package apptest gives tests the drivers of a server: the released ones and mem, the driver that
// imitates boxes inside the test's own process.
//
// Only tests import it. Invariant: the released program links neither it nor internal/driver/mem.
package apptest

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Drivers returns the released drivers and mem, which runs the boxes of both trust levels.
func Drivers() app.Drivers {
	return append(app.ReleasedDrivers(), app.NamedDriver{
		Name: "mem",
		Open: func(config.Config, []string, string) (map[holdfast.Trust]sandbox.Driver, error) {
			d := mem.New(mem.Config{})
			return map[holdfast.Trust]sandbox.Driver{holdfast.Untrusted: d, holdfast.Trusted: d}, nil
		},
	})
}
