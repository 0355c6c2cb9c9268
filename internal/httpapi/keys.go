package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
)

type keyInput struct {
	ID string `path:"id" doc:"The key's id, as in the list." example:"5f1c0a9e7b3d2468"`
}

func (in keyInput) named() (holdfast.KeyID, error) { return holdfast.Parse[holdfast.KeyID](in.ID) }

type createKeyInput struct {
	Body holdfast.CreateKey
}

type createdKeyOutput struct {
	Body struct {
		Key holdfast.Key `json:"key"`
		// Secret is the bearer token. No later answer repeats it.
		Secret string `json:"secret"`
	}
}

type keyOutput struct {
	Body struct {
		Key holdfast.Key `json:"key"`
	}
}

type keysOutput struct {
	Body struct {
		Keys []holdfast.Key `json:"keys"`
	}
}

func (a *API) keyRoutes() {
	const tag = "keys"
	create := route(http.MethodPost, "/v1/keys", "create-key", tag, "Make an API key; its secret is told this once")
	create.DefaultStatus = http.StatusCreated
	handle(a, create, a.createKey)
	handle(a, route(http.MethodGet, "/v1/keys", "list-keys", tag, "List the API keys, oldest first"), a.listKeys)
	handleOne(a, route(http.MethodDelete, "/v1/keys/{id}", "revoke-key", tag, "Revoke an API key, at once and for good"), a.revokeKey)
}

func (a *API) createKey(ctx context.Context, in *createKeyInput) (*createdKeyOutput, error) {
	most := guard.CallerOf(ctx).MaxTrust()
	if t, err := holdfast.Parse[holdfast.Trust](in.Body.MaxTrust); err == nil && t.Exceeds(most) {
		return nil, holdfast.Errorf(holdfast.KindDenied, "key.create", "max_trust %s of the new key is above the maximum trust of the key that asks for it, which is %s",
			holdfast.Quote(in.Body.MaxTrust), most).WithHint("send the request with a key of that maximum trust, or with the owner token")
	}
	k, secret, err := a.cfg.Keys.Create(ctx, in.Body)
	out := &createdKeyOutput{}
	out.Body.Key, out.Body.Secret = k, secret
	return out, err
}

func (a *API) listKeys(ctx context.Context, _ *struct{}) (*keysOutput, error) {
	list, err := a.cfg.Keys.List(ctx)
	out := &keysOutput{}
	out.Body.Keys = some(list)
	return out, err
}

// revokeKey revokes a key, and ends the streams, terminals and commands that it has open.
func (a *API) revokeKey(ctx context.Context, id holdfast.KeyID, _ *keyInput) (*keyOutput, error) {
	k, err := a.cfg.Keys.Revoke(ctx, id)
	if err != nil {
		return nil, err
	}
	a.streams.End(id)
	out := &keyOutput{}
	out.Body.Key = k
	return out, nil
}
