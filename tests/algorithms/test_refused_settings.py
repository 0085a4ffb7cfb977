"""Settings of algorithms and learners that make no sense are refused by their names."""

import pytest

from esac_mpi.config import ConfigError, load

REFUSED = """\
cem --cem.population_size 5: cem.population_size = 5
cem --cem.variance_init 0: cem.variance_init = 0.0
cem --cem.elite_fraction 1.5: cem.elite_fraction = 1.5
cem --cem_rl.tau 0.1: cem_rl.tau
cem --policy.output clip: policy.output
cem --cem.critic serial: cem.critic
cem --cem.importance_mixing true --cem.sampling mirrored: cem.sampling
cem_rl --cem_rl.importance_mixing true --cem_rl.trained_fraction 1: cem_rl.importance_mixing = true
cem_rl --cem_rl.batch_size 2000 --cem_rl.replay_capacity 1000: cem_rl.batch_size = 2000
cem_rl --cem_rl.trained_fraction 1.1: cem_rl.trained_fraction = 1.1
erl --erl.population_size 2: erl.population_size = 2
erl --erl.population_size 6 --erl.elite_fraction 0.5: size = 6: .* lower elite_fraction
pderl --erl.elite_fraction 0.9 --erl.population_size 2: 3 or more
derl --erl.memory_size 15 --erl.distillation_batch 8: erl.memory_size = 15
perl --erl.memory_size 15 --erl.mutation_batch 16: erl.memory_size = 15
perl --erl.crossover distillation: algorithm = pderl
erl --erl.distillation_batch 9: erl.distillation_batch
pderl --erl.learner td3 --erl.batch_size 16: erl.batch_size
pderl --sac.tau 0.1: sac.tau
erl --erl.learner sac --sac.start_steps 5: sac.start_steps
td3 --td3.policy_delay 0: td3.policy_delay = 0
ddpg --ddpg.tau 1.5: ddpg.tau = 1.5
ddpg --ddpg.replay_capacity 60: ddpg.batch_size = 64
td3 --td3.lr_td3 0: td3.lr_td3 = 0.0
ppo --ppo.lr_ppo 0: ppo.lr_ppo = 0.0
ppo --ppo.gae_lambda 1.5: ppo.gae_lambda = 1.5
ppo --ppo.batch_size 1: ppo.batch_size = 1
ppo --ppo.steps_per_generation 63: ppo.batch_size = 64
ppo --learner.precision bf16: learner.precision
ppo --policy.layer_norm true: policy.layer_norm
ppo --policy.linear true: policy.linear
esac --policy.hidden [] --policy.linear_gain 2: policy.linear_gain
esac --policy.linear true --policy.linear_gain 0: policy.linear_gain = 0.0
esac --policy.linear true --policy.linear_gain 1e-50: policy.linear_gain = 1e-50
esac --policy.linear true --policy.linear_gain 1e4: policy.linear_gain = 10000.0
esac --esac.sigma_rule one_fifth --esac.transfer off: esac.transfer = tested
esac --esac.sigma_rule one_fifth --esac.length_cap 2: esac.length_cap = 0
esac --esac.sigma_rule one_fifth --esac.action_noise 0.1: esac.action_noise = 0
esac --esac.sigma_rule one_fifth --esac.winner_fraction 0.5 \
--esac.population_size 4: esac.winner_fraction
es --es.sigma_rule one_fifth --es.length_cap 2: es.length_cap = 0
esac --esac.transfer means --esac.sac_copies 0: esac.sac_copies = 1 or more
esac --esac.transfer means --esac.winner_fraction 0.96 --esac.population_size 50: theta_es
esac --esac.transfer tested --esac.sac_phases false: esac.transfer = off
aes_rl --aes_rl.variance_rule success: aes_rl.variance_rule = success
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule adaptive: variance_rule = adaptive
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule fixed: variance_rule = fixed
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule success \
--aes_rl.success_factor 0: success_factor = 0.0
aes_rl --aes_rl.mean_rule linear --aes_rl.mean_episodes 0: mean_episodes = 0
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule success \
--aes_rl.mean_episodes 0: mean_episodes = 0
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_impossible_settings_are_refused_by_their_names(case):
    line, _, named = case.partition(": ")
    with pytest.raises(ConfigError, match=named):
        load(["--algorithm", *line.split()])
