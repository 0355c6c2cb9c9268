package secrets

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

// Rotate makes a new root key, wraps every secret and every environment with it, and then removes the
// former root keys. A crash at any point loses nothing: a root key is on disk before anything is
// sealed with it, and is removed only when nothing is sealed with it any more. The next rotation
// finishes one that was interrupted.
func (v *Vault) Rotate(ctx context.Context) ([]holdfast.Secret, error) {
	v.writing.Lock()
	defer v.writing.Unlock()
	list, err := v.store.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.allOpen(ctx, list); err != nil {
		return nil, err
	}
	if err := v.renew(); err != nil {
		return nil, err
	}
	if err := v.rewrapEnvironments(ctx); err != nil {
		return nil, err
	}
	if err := v.rewrapSecrets(ctx, list); err != nil {
		return nil, err
	}
	if err := v.ring.Retire(); err != nil {
		return nil, err
	}
	return v.List(ctx)
}

// allOpen returns an error if a stored value cannot be opened. A rotation would remove for good the
// root key that might open it.
func (v *Vault) allOpen(ctx context.Context, list []Record) error {
	for _, r := range list {
		if err := Check(v.ring, r.Name, r.Sealed); err != nil {
			return err
		}
	}
	return v.eachEnvironments(ctx, func(page []Environment) error {
		for _, e := range page {
			if err := CheckEnvironment(v.ring, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// renew waits until each environment that was sealed with the former root key is stored, and makes a new root
// key.
func (v *Vault) renew() error {
	v.sealing.Lock()
	defer v.sealing.Unlock()
	return v.ring.Renew()
}

func (v *Vault) rewrapSecrets(ctx context.Context, list []Record) (err error) {
	wrapped := make([]Rewrapped, len(list))
	for i, r := range list {
		wrapped[i] = Rewrapped{Record: r, Was: r.Sealed}
		if wrapped[i].Sealed, err = v.ring.Rewrap(bound(r.Name), r.Sealed); err != nil {
			return err
		}
		wrapped[i].KeyID = v.ring.KeyID()
	}
	return v.store.RewrapSecrets(ctx, wrapped)
}

func (v *Vault) rewrapEnvironments(ctx context.Context) error {
	return v.eachEnvironments(ctx, func(page []Environment) (err error) {
		for i, e := range page {
			page[i].Was = e.Sealed
			if page[i].Sealed, err = v.ring.Rewrap(e.boundTo(), e.Sealed); err != nil {
				return err
			}
		}
		return v.store.RewrapEnvironments(ctx, page)
	})
}

// eachEnvironments calls do for the stored environments, some at a time.
func (v *Vault) eachEnvironments(ctx context.Context, do func(page []Environment) error) error {
	for last := (Environment{}); ; {
		page, err := v.store.Environments(ctx, last)
		if err != nil || len(page) == 0 {
			return err
		}
		last = page[len(page)-1]
		if err := do(page); err != nil {
			return err
		}
	}
}
