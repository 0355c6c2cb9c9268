package db

import (
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// MaxDamage bounds how many damaged places are listed.
const MaxDamage = 100

// damage lists damaged places of the database, each once.
type damage struct {
	path string
	warn func(error)

	mu    sync.Mutex
	known []string
}

// list returns a copy of the list of damaged places.
func (d *damage) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.known)
}

// add adds a damaged place to the list. It warns of each place once; a full list ignores new places.
func (d *damage) add(place string) {
	d.mu.Lock()
	known := slices.Contains(d.known, place) || len(d.known) >= MaxDamage
	if !known {
		d.known = append(d.known, place)
	}
	d.mu.Unlock()
	if !known {
		d.warn(holdfast.Errorf(holdfast.KindInternal, "store.damaged", "the database %s is damaged: %s", d.path, place).
			WithHint("holdfast doctor --verify lists all damage; a backup of the data directory has the whole data"))
	}
}
