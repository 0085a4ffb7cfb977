"""ESAC: Evolution-based Soft Actor-Critic on MPI clusters (Suri et al., Maximum Mutation Reinforcement Learning)."""

__version__ = "0.1.0"
