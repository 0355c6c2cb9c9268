//go:build linux

package local_test

import (
	"fmt"
	"sync"
	"testing"
)

// TestFirstListSparesStartingBoxes: the first List of a driver removes the remains of
// dead boxes. It spares a box that is being started meanwhile, by a thread of this
// process in the box's cgroup.
func TestFirstListSparesStartingBoxes(t *testing.T) {
	for range 5 {
		dir := home(t)
		d := open(t, dir)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				s := spec(dir, fmt.Sprintf("starting-%d", i))
				if _, err := d.Ensure(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if _, err := d.List(t.Context()); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		list, err := d.List(t.Context())
		if err != nil || len(list) != 4 {
			t.Fatalf("%d boxes, %v", len(list), err)
		}
		for _, i := range list {
			if !i.Running {
				t.Errorf("box %s does not run", i.Box)
			}
			if err := d.Remove(t.Context(), i.Box); err != nil {
				t.Error(err)
			}
		}
	}
}
