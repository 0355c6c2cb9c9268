// What anybody can build with the public packages, from outside of the repository.
// TestOutsideModule of the root package runs its tests.
module example.com/outside

go 1.26.0
